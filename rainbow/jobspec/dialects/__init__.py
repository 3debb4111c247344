"""The dialects of a jobspec: each reads its document into the one normal form."""
