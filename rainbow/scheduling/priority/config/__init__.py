"""Settings of the policy `priority`."""
