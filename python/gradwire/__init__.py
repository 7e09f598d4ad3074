"""gradwire moves gradients: the Python side of libgradwire. Training scripts want `import gradwire.torch`."""
from gradwire._library import GradwireError, __version__, library_path

__all__ = ["GradwireError", "__version__", "library_path"]
