"""The lab, the install, the doctor, notebooks run and held to conventions, the nbval plugin."""
