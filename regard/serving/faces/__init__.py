"""The HTTP APIs of `regard serve`, each as existing clients know it: LibreTranslate's, DeepL's and OpenAI's."""
