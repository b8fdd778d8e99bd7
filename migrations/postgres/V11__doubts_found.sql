-- Rows that were copied out of a file may have calls of before there were doubts that were called failed although an earlier attempt was lost. Who
-- migrates asks today's rule of every call without a doubt before this, and again whenever it finds an older schema than this one.
COMMENT ON COLUMN tool_calls.doubt IS 'the earliest attempt that may have had the effect and of which nobody knows; since schema 11 also of calls of before there were doubts';
