"""Options that several commands share: their words, and what they become."""
