"""What planning needs to know and does not decide: digests, versions, devices, this processor."""
