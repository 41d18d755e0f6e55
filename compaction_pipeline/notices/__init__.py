"""Sends notices into the world of mail, webhooks and chats."""
