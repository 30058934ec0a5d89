"""`harness diff`: one occurrence opened, and the rules that name the line."""
