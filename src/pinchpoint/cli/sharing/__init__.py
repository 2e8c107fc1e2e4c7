"""Commands that take recordings and answers elsewhere: to files, viewers, people and assistants."""
