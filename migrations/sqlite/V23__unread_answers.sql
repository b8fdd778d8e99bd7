-- Until when a client that is known not to have read an answer may ask for it again. Until now that was owed to it as if it had never been written.
ALTER TABLE gateway_arrivals ADD COLUMN unread_until TEXT;
