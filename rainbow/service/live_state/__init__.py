"""One cluster's scheduling steps: what has changed is read, a view frozen, a plan made, checked and carried out."""
