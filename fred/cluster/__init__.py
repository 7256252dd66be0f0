"""The machines that are simulated, as a scenario describes them: how long things take, who shares what, who fails when."""
