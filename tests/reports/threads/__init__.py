"""The reports, one module per tracker. All are modeled on what their threads say."""
