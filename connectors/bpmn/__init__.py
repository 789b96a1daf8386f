"""BPMN engines that speak the Camunda 7 REST API, such as Camunda 7 and Operaton."""
