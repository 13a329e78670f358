"""What is wrong and what to do about it: checks of the machine, probes of the card, and what logs say."""
