"""Update rules of the dual variables: one file a rule, explicit state."""
