# What is taken out of uPlot.esm.js of the package: indentation, empty lines, comments. No code is changed.
s/^[[:space:]]+//
s/[[:space:]]+\/\/ .*$//
/^\/\//d
/^$/d
/^\/\*$/,/\*\/$/d
