"""Commits to Iceberg tables. `../CONTRACT.md` has every rule.

`attempts.py` has the loop, which knows neither tasks nor kinds of tables. `compaction.py` is a commit of merged tasks in that loop. What a
commit loads, decides and writes depends on what it goes to: `plain.py`, `base_store.py` and `change_store.py` are the strategies for that,
and `committer.py` picks one for each commit.
"""
