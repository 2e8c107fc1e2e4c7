"""The sentences that every format for people shares. Layout is the renderers' business."""
