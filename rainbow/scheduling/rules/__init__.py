"""What holds for a plan whichever policy makes it: limits of running cores, and preemption by quality of service."""
