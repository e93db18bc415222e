"""
Fast paths that a model can do without: results are those of `models/` but for rounding.

This package imports `models/`, which never imports it: `models.ops.find_kernels` looks its files up by name where
one can be used. So a saved folder, which ships the files of `models/`, needs none of them, and finds them where the
package is installed.
"""

# Names, arguments and results of the functions that models call. Increase it with any change of these, here and in
# models/ops.py: the code in a saved folder may be older than the package.
INTERFACE = 4
