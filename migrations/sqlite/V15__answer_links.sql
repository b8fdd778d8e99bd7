-- An answer carries a digest over what it says, written with it, so that one that somebody wrote or edited beside this program is named by
-- `ua db check`. Answers that were there before have an empty one.
ALTER TABLE answers ADD COLUMN link TEXT;
UPDATE answers SET link = '';
