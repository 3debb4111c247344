"""What starts tasks on behalf of an agent."""
