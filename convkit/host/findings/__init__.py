"""The results of checks: coded, with place, evidence and remedy."""
