"""What is left behind for auditors: the audit chain, receipts, bundles and their offline verifier."""
