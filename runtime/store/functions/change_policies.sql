-- Puts a policy in force in place of the one of its name, or takes it out of force, with the line that says so. What is
-- in force then follows from the line alone. A policy in force that is not in the database stays: it denies.
--
-- Executed by counterseal_faces, because people change policies, and by counterseal_engine, which may hand their
-- requests on. Nobody can change policy_digests in any other way. The
-- line names the author as the policy's publication did.
CREATE OR REPLACE FUNCTION change_policies(_line bytea, _tenant text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE
  told json := convert_from(_line, 'UTF8')::json;
  its policies;
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  SELECT * INTO its FROM policies WHERE tenant_id = _tenant AND digest = told #>> '{data,digest}'
    AND name = told #>> '{data,name}' AND version::text = told #>> '{data,version}'
    AND (told ->> 'type' = 'policy.retired' OR published_by = told #>> '{data,author}');
  IF NOT FOUND THEN
    RAISE EXCEPTION 'no such policy was published' USING ERRCODE = 'insufficient_privilege';
  END IF;
  PERFORM link_line(_line, '^policy\.(activated|retired)$', _tenant);
  UPDATE tenants SET policy_digests = ARRAY(
    SELECT d.digest FROM (
      SELECT unnest(policy_digests) EXCEPT SELECT p.digest FROM policies p WHERE p.tenant_id = _tenant AND p.name = its.name
      UNION ALL SELECT its.digest WHERE told ->> 'type' = 'policy.activated') d(digest)
    LEFT JOIN policies p ON p.tenant_id = _tenant AND p.digest = d.digest
    ORDER BY p.digest IS NULL, p.name COLLATE "C", d.digest COLLATE "C")
  WHERE tenant_id = _tenant;
END $function$;

ALTER FUNCTION change_policies OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION change_policies FROM PUBLIC;

GRANT EXECUTE ON FUNCTION change_policies TO counterseal_engine, counterseal_faces;
