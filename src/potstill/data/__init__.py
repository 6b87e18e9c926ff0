"""Text → batches: sources, tables, splits, encoding, augmentation. Knows no network."""

__all__: list[str] = []
