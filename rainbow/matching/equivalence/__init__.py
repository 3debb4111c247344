"""Equal subtrees as one class, so that work does not grow with the cluster."""
