//! The support table as Markdown, for a README, an issue or a proposal.

use report::cell;
use report::text::title;

use super::{Evidence, Judged, ProjectTable, Support, Weight};

/// Two kinds of tables: programs with their evidence, and the criteria of each project.
pub(crate) fn markdown(support: &Support) -> String {
    let mut page = "# Evidence by architecture\n\n".to_owned();
    page += "Each cell shows the evidence from the recorded runs and names the newest of these runs; a cell without a \
             run shows \"no evidence\". If several runs have a result for a case, the newest counts. Results from an \
             emulator apply to the instruction set as that emulator implements it, not to real hardware.\n\n";
    if support.programs.is_empty() {
        page += "No run contains a program.\n\n";
    } else {
        page += &head("program", support);
        for program in &support.programs {
            let cells: String = program.cells.iter().map(|evidence| format!(" {} |", shown(evidence))).collect();
            page += &format!("| {} {} |{cells}\n", cell(&program.component), cell(&program.version));
        }
        page.push('\n');
    }
    support.projects.iter().for_each(|table| page += &project(table, support));
    page
}

fn head(first: &str, support: &Support) -> String {
    let names: String = support.arches.iter().map(|arch| format!(" {} |", cell(&arch.name))).collect();
    format!("| {first} |{names}\n| --- |{}\n", " --- |".repeat(support.arches.len()))
}

fn shown(evidence: &Evidence) -> String {
    if evidence.is_empty() {
        return "no evidence".into();
    }
    let built = evidence.built.iter().map(|run| format!("built and audited ({})", cell(run)));
    let executed = evidence.executions.iter().map(|(how, execution)| {
        let said = format!("{how}: {}; {}", execution.sentence(), execution.sustained());
        format!("{} ({})", cell(&said), cell(execution.newest()))
    });
    let lines: Vec<String> = built.chain(executed).collect();
    let never = if evidence.executions.is_empty() { "<br>never started" } else { "" };
    lines.join("<br>") + never
}

fn project(table: &ProjectTable, support: &Support) -> String {
    let project = &table.project;
    let mut text = format!("## Criteria of {}\n\n", cell(&project.name));
    text += &format!("Source: {}, read in {}.\n\n", cell(&project.source), cell(&project.read));
    text += &head("criterion", support);
    let tier = |arch: &super::Arch| project.listed.get(&arch.name).map_or("not listed", String::as_str);
    let listed: String = support.arches.iter().map(|arch| format!(" {} |", cell(tier(arch)))).collect();
    text += &format!("| Tier assigned by the project |{listed}\n");
    for (criterion, cells) in project.criteria.iter().zip(&table.rows) {
        let cells: String = cells.iter().map(|judged| format!(" {} |", said(judged))).collect();
        text += &format!("| {}: {} |{cells}\n", cell(&title(&criterion.tier)), cell(&criterion.text));
    }
    text + "\n"
}

fn said(judged: &Judged) -> String {
    let word = judged.weight.word();
    let word = if judged.weight == Weight::Nothing { word.to_owned() } else { format!("**{word}**") };
    let text = if judged.text.is_empty() { String::new() } else { format!(": {}", cell(&judged.text)) };
    let run = judged.run.as_ref().map_or_else(String::new, |run| format!(" ({})", cell(run)));
    format!("{word}{text}{run}")
}
