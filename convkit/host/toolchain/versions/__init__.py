"""Which releases of which packages a stage needs, resolved and locked."""
