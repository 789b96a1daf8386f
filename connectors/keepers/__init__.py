"""The keepers of secrets: the environment, files, HashiCorp Vault and AWS Secrets Manager."""
