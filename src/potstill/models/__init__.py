"""Networks, on `transformers`: where their parts are, what they compute inside, how a student starts."""

__all__: list[str] = []
