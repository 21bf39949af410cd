//! `boot status`, `plan`, `export` and `import`: what is known, and taking it elsewhere.

use super::{open_root, order, store, volume};
use crate::args::boot::{ExportArgs, ImportArgs, PlanArgs, StatusArgs};
use crate::exit::{Failure, Status};
use crate::fresh;
use crate::report::boot::Listed;
use crate::report::{print, print_json};
use crate::text::{counted, size};
use longrun_boot::{Names, Store, StoreError, import as taken, read_list, replan};
use std::io::Write as _;

/// Shows every list.
pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    let root = open_root(&args.place, false)?;
    let mut lists = Vec::new();
    let mut troubles = String::new();
    if let Some(store) = store(&args.place, &root)? {
        for names in store.names()? {
            match listed(&store, &names) {
                Ok(listed) => lists.push(listed),
                Err(error) => troubles += &format!("{}: {error}\n", names.as_str()),
            }
        }
    }
    if args.json {
        return print_json(&lists);
    }
    let forbidden =
        if root.forbids() { "the kernel's command line says longrun.preload=0: nothing is read ahead\n" } else { "" };
    let known: String = lists.iter().map(Listed::text).collect();
    let nothing = known.is_empty() && troubles.is_empty();
    let nothing = if nothing { "nothing is recorded yet; longrun boot enable begins with the next boot\n" } else { "" };
    print(&format!("{forbidden}{known}{troubles}{nothing}"))
}

fn listed(store: &Store, names: &Names) -> Result<Listed, StoreError> {
    let list = store.list(names)?;
    let (history, plan) = (store.history(names)?, store.plan(names)?);
    Ok(Listed::of(names, list.as_ref(), &history, plan.as_ref()))
}

/// Makes the plan anew, and shows it.
pub fn plan(args: &PlanArgs) -> Result<(), Failure> {
    let root = open_root(&args.place, false)?;
    let names = Names::of(&args.list)?;
    let store = known(&args.place, &root, &names)?;
    let volume = volume(&args.place, &root)?;
    replan(&store, &names, &volume, order(&volume))?;
    let listed = listed(&store, &names)?;
    if args.json { print_json(&listed) } else { print(&listed.text()) }
}

/// The files of a list that must be there.
fn known(place: &crate::args::boot::Place, root: &longrun_boot::Root, names: &Names) -> Result<Store, Failure> {
    let store = store(place, root)?;
    let there = match &store {
        Some(store) => store.list(names)?.is_some(),
        None => false,
    };
    let missing = || {
        let text = format!("{}: there is no such list; longrun boot status shows those that there are", names.as_str());
        Failure::new(Status::Failed, text)
    };
    store.filter(|_| there).ok_or_else(missing)
}

/// Writes a list to a file.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    let root = open_root(&args.place, false)?;
    let names = Names::of(&args.list)?;
    let store = known(&args.place, &root, &names)?;
    let Some(list) = store.list(&names)? else { return Ok(()) };
    fresh::write(&args.file, |file| file.write_all(list.to_text().as_bytes()))
        .map_err(|error| Failure::io(&args.file, "writing the list", &error))
}

/// Takes a list from a file.
pub fn import(args: &ImportArgs) -> Result<(), Failure> {
    let root = open_root(&args.place, false)?;
    let names = Names::of(&args.list)?;
    let volume = volume(&args.place, &root)?;
    let found = taken(&read_list(&args.file)?, &volume);
    if !found.is_enough() {
        let text = format!(
            "{}: only {:.0} % of what it lists is on this volume, so it is of another system; nothing was changed",
            args.file.display(),
            found.share * 100.0
        );
        return Err(Failure::new(Status::Refused, text));
    }
    let store = Store::make(&root, &args.place.state)?;
    store.keep_list(&names, &found.list)?;
    let plan = replan(&store, &names, &volume, order(&volume))?;
    let bytes = plan.map_or(longrun_layout::Bytes(0), |plan| plan.bytes().0);
    print(&format!(
        "{}: {} are read ahead next time; {} are not here\n",
        names.as_str(),
        size(bytes),
        counted(found.gone, "file", "files")
    ))
}
