"""TITO families: the declaration type, the table of families, and how `auto` picks one."""
