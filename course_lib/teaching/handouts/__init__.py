"""Making a handout: what is cut, declared, shown, and searched for solutions."""
