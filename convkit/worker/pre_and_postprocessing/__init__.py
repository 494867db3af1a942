"""Images, sounds and texts as models get them: by the original's processor, and by constants."""
