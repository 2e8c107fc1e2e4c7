"""The pages of ``pinchpoint serve``: many recordings below one folder, read only."""
