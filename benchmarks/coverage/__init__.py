"""Which networks of timm and torchvision convert, save and load: python -m benchmarks.coverage"""
