"""proofgrad: a deep-learning framework and tensor compiler whose every rewrite rule is proven."""
