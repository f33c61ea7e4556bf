"""Where models come from and where they are kept: names resolve to local folders in Hugging Face layout."""
