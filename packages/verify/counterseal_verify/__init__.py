"""The verifier of evidence bundles, with the parts of Counterseal that it needs, and no others."""
