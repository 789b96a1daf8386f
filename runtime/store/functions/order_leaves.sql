-- Gives the leaves of a tenant's log that have no place yet their places, in the order in which they were written;
-- returns how many. A leaf stays without a place until this gives it one, so none is missed, however late it commits.
--
-- Executed by counterseal_engine, whose keeper gives the order. It runs with the rights of the tables' owner, because no
-- login may change a leaf; it changes only leaves without a place.
CREATE OR REPLACE FUNCTION order_leaves(_tenant text) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE met int;
BEGIN
  -- One keeper at a time: the next one sees the places that this one has given. A crash leaves the leaves unordered.
  PERFORM pg_advisory_xact_lock(hashtextextended('counterseal.log:' || _tenant, 0));
  UPDATE log_leaves l SET place = w.place FROM (
    SELECT leaf_id, row_number() OVER (ORDER BY leaf_id)
      + (SELECT coalesce(max(place), -1) FROM log_leaves WHERE tenant_id = _tenant AND place IS NOT NULL) AS place
    FROM log_leaves WHERE tenant_id = _tenant AND place IS NULL ORDER BY leaf_id LIMIT 1000) w
  WHERE l.tenant_id = _tenant AND l.leaf_id = w.leaf_id;
  GET DIAGNOSTICS met = ROW_COUNT;
  RETURN met;
END $function$;

REVOKE ALL ON FUNCTION order_leaves FROM PUBLIC;

GRANT EXECUTE ON FUNCTION order_leaves TO counterseal_engine;
