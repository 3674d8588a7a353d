"""What coordinator and sites say to each other: messages, their bytes, what makes a reply plausible, the transport."""
