"""Evidence for auditors: the audit chain, receipts, bundles and their offline verifier."""
