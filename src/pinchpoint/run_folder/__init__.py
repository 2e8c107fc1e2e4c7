"""What ``pinchpoint run`` leaves behind, and the only place that knows its documents.

``layout`` has the names of files and folders; it needs the standard library only, because it is
also used inside the user's program. ``documents`` declares what is in the JSON files, ``files``
writes and reads them. Described for people in ``docs/reference/run-folder.md``.
"""
