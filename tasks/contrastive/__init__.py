"""Stage one: curriculum-based contrastive pre-training on NLI triplets."""
