# For scripts that are run in the root of the workspace: the version in Cargo.toml, which is the one of everything.
version_of_workspace() {
    sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml
}
