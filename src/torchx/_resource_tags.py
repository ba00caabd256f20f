"""Keys of the tags that named resources carry: plugins write them, ``torchx.specs`` reads them."""

RESOURCE_NAME_TAG = "torchx/named_resources.name"
IS_FRACTIONAL_TAG = "torchx/named_resources.is_fractional"
